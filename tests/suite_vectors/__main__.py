"""`python -m tests.suite_vectors`: makes conformance/vectors anew, and has implementations confirm it."""

from tests.suite_vectors.files import write

if __name__ == "__main__":
    write()
