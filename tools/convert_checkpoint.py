"""`mmposenc convert`, from a checkout: python tools/convert_checkpoint.py --help"""
from mmposenc.commands.convert import main

if __name__ == '__main__':
    main()
