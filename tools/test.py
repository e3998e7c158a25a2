"""`mmposenc test`, from a checkout: python tools/test.py --help"""
from mmposenc.commands.test import main

if __name__ == '__main__':
    main()
