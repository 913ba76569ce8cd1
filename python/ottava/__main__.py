"""python3 -m ottava configs [FOLDER]: copies the configurations of the package to ./configs or to FOLDER."""

import sys

from ._paths import copy_configs


def main(words):
    if len(words) not in (1, 2) or words[0] != "configs":
        sys.exit(__doc__)
    try:
        print(copy_configs(*words[1:]))
    except OSError as error:
        sys.exit(f"ottava: the configurations cannot be copied: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
