"""``python -m holdfast.launch`` takes the command line of ``python -m torch.distributed.launch``."""

from holdfast.own_path import put_directory_last

if __name__ == "__main__":
    put_directory_last()
    from holdfast.cli.legacy import main

    main()
