"""The routes of endpoints: what may be asked for, and what it will cost. Nothing secret.

Owns no rule; it shows the registry as it was read at start, without anything of a provider.
"""

from starlette.requests import Request
from starlette.responses import Response

from services.gateway.auth import Anyone
from services.gateway.desk import desk_of
from services.gateway.problems import Problem
from services.gateway.resources import EndpointsResource
from services.gateway.views import endpoint_resource


async def list_endpoints(request: Request, _: Anyone) -> Response:
    """All endpoints, by name."""
    endpoints = desk_of(request).endpoints
    resource = EndpointsResource(
        endpoints=[endpoint_resource(endpoints[name].spec) for name in sorted(endpoints)]
    )
    return Response(resource.model_dump_json().encode(), media_type="application/json")


async def show_endpoint(request: Request, name: str, _: Anyone) -> Response:
    """One endpoint."""
    rules = desk_of(request).endpoints.get(name)
    if rules is None:
        raise Problem("not_found")
    body = endpoint_resource(rules.spec).model_dump_json().encode()
    return Response(body, media_type="application/json")
