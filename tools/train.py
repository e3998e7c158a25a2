"""`mmposenc train`, from a checkout: python tools/train.py --help"""
from mmposenc.commands.train import main

if __name__ == '__main__':
    main()
