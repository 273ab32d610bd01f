"""A newcomer without money reads the documentation index, opens every page named there, lists the
agents, and asks an agent for the price: the price is the same as in the list.
"""

import re

from x402sim import LiveWorld, scenario


@scenario(
    title="Open pages: documentation, agents and prices are readable without payment",
    covers="2.7/agent, 4.3/list, 4.5/llms-txt, 9/no-version-segment",
)
async def open_pages(world: LiveWorld) -> None:
    newcomer = await world.payer("newcomer")
    index = await newcomer.send("GET", "/llms.txt")
    world.expect(index, 200, "4.5/llms-txt")
    links = re.findall(r"\]\(https?://[^/)]+(/[^)]*)\)", index.text)
    world.expect(len(links) > 0, True, "4.5/llms-txt")
    for path in links:
        page = await newcomer.send("GET", path)
        world.expect(f"{path}: {page.status}", f"{path}: 200", "4.5/llms-txt")
        world.expect(bool(re.match(r"/v\d+/", path)), False, "9/no-version-segment")

    listed = await newcomer.send("GET", "/api/agents")
    world.expect(listed, 200, "4.3/list")
    for agent in listed.body["agents"]:
        price = (await newcomer.ask(agent["resource"])).requirements
        world.expect(price["maxAmountRequired"], agent["price"], "2.7/agent")
        world.expect(price["payTo"], agent["payTo"], "2.7/agent")
