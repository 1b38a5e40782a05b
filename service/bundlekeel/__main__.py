"""`python -m bundlekeel`, and the command `bundlekeel`."""


def main() -> None:
    """Run a command. An interrupt ends it without a traceback, also while the modules of all commands are imported."""
    try:
        from bundlekeel.wiring import main as run  # noqa: PLC0415 - see above

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
