"""`mmposenc figures`, from a checkout: python tools/visualize_encoding.py --help"""
from mmposenc.commands.figures import main

if __name__ == '__main__':
    main()
