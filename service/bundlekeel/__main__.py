"""`python -m bundlekeel`."""

from bundlekeel.bootstrap import main

if __name__ == "__main__":
    main()
