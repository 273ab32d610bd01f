"""Vectors: data about headers, signatures, amounts and verdicts, and the judge of an adapter."""
