"""`mmposenc cache`, from a checkout: python tools/cache_features.py --help"""
from mmposenc.commands.cache import main

if __name__ == '__main__':
    main()
