"""`python -m tests.explore`; `campaign.py` says what it does."""

from tests.explore.campaign import main

if __name__ == "__main__":
    raise SystemExit(main())
