"""The judge of standard servers: shops that sell by x402, with a facilitator of the judge's."""
