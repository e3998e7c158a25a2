"""`mmposenc browse`, from a checkout: python tools/browse_dataset.py --help"""
from mmposenc.commands.browse import main

if __name__ == '__main__':
    main()
