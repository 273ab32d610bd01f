"""The service's documentation: pages, OpenAPI, and the page to try it in a browser."""
