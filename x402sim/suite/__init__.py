"""The engine of the judges: subjects, their cases and options, verdicts, reports.

Code for a single kind of subject is in a package of its own, such as `payer`; the subject's cases
are in a folder of `conformance`.
"""
