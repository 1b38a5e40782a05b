"""`python -m bundlekeel`."""

from bundlekeel.wiring import main

if __name__ == "__main__":
    main()
