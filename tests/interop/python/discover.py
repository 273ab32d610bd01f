"""Someone looks for what is sold: the list of a facilitator, and a search in it.

It reads {"facilitator", "query"} from stdin and prints the resources as JSON.
"""

import json
import sys

from x402.extensions.bazaar import SearchDiscoveryResourcesParams, with_bazaar
from x402.http import FacilitatorConfig, HTTPFacilitatorClientSync

told = json.load(sys.stdin)
index = with_bazaar(HTTPFacilitatorClientSync(FacilitatorConfig(url=told["facilitator"])))
listed = index.extensions.bazaar.list_resources().items
found = index.extensions.bazaar.search(SearchDiscoveryResourcesParams(query=told["query"]))
print(
    json.dumps(
        {
            "listed": [each.to_dict() for each in listed],
            "found": [each.resource for each in found.resources],
        }
    )
)
