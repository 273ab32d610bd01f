"""Someone looks for what is sold: the list of a facilitator, and a search in it.

It reads {"facilitator", "query"} from stdin and prints the resources as JSON, the faults that its
validators find in their declarations, and declarations of its own.
"""

import json
import sys

from x402.extensions.bazaar import (
    SearchDiscoveryResourcesParams,
    declare_discovery_extension,
    validate_discovery_extension,
    with_bazaar,
)
from x402.extensions.bazaar.facilitator import validate_discovery_extension_spec
from x402.http import FacilitatorConfig, HTTPFacilitatorClientSync

told = json.load(sys.stdin)
index = with_bazaar(HTTPFacilitatorClientSync(FacilitatorConfig(url=told["facilitator"])))
listed = index.extensions.bazaar.list_resources().items
found = index.extensions.bazaar.search(SearchDiscoveryResourcesParams(query=told["query"]))
declared = [each.to_dict()["extensions"]["bazaar"] for each in listed]
checks = (validate_discovery_extension, validate_discovery_extension_spec)
posted = declare_discovery_extension(input={"q": "x"}, body_type="json")["bazaar"]
got = declare_discovery_extension(input={"q": "x"})["bazaar"]
for each, method in ((posted, "POST"), (got, "GET")):
    each["info"]["input"]["method"] = method  # the middleware's part
print(
    json.dumps(
        {
            "listed": [each.to_dict() for each in listed],
            "found": [each.resource for each in found.resources],
            "faults": [
                fault for each in declared for check in checks for fault in check(each).errors
            ],
            "declared": [posted, got],
        }
    )
)
