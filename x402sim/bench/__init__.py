"""How fast is x402sim, compared with theoretical limits?

The sides of a comparison alternate in one process, so that a slow machine slows both: the
ratios hold on other machines, the absolute numbers do not.
"""
