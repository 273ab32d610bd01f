"""How fast is it, and how far from as fast as it could be?

Every comparison is made in one process, in turn, so that what slows the machine down
slows both sides: the ratios are worth quoting, the absolute numbers are this machine's.
"""
