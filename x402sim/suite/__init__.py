"""The engine of the judges: subjects, their cases and options, verdicts, reports.

What only one kind of subject needs is in a package of its own (`service`, `payer`); its cases are
in a folder of `conformance`.
"""
