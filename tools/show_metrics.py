"""`mmposenc show-metrics`, from a checkout: python tools/show_metrics.py --help"""
from mmposenc.commands.show_metrics import main

if __name__ == '__main__':
    main()
