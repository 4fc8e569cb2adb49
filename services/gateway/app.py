"""The gateway's application: routes, and what becomes of errors.

Promises that every error is answered with a problem document, unknown routes and unexpected
exceptions included, and that `Unavailable` is a 503 and never a 500. Must hold no state of its
own; what it works with stands on the desk.
"""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp

from services.gateway.artifacts import UNAVAILABLE_RETRY_SECONDS, fetch_artifact
from services.gateway.bodies import ClientGone
from services.gateway.desk import Desk, desk_of
from services.gateway.edge import Edge
from services.gateway.endpoints import list_endpoints, show_endpoint
from services.gateway.jobs import cancel_job, find_result, request_job, show_job
from services.gateway.openapi import describe, reference_page
from services.gateway.problems import Problem, explanation_page, render
from shared.domain.errors import Unavailable
from shared.kit.http_metrics import HttpMetrics

GONE_STATUS = 499

Handler = Callable[[Request, Exception], Awaitable[Response]]

ROUTES: tuple[tuple[str, str, Callable[..., Awaitable[Response]]], ...] = (
    ("POST", "/v1/jobs", request_job),
    ("GET", "/v1/jobs/{id}", show_job),
    ("POST", "/v1/jobs/{id}/cancel", cancel_job),
    ("GET", "/v1/jobs/{id}/result", find_result),
    ("GET", "/v1/jobs/{id}/artifacts/{name}", fetch_artifact),
    ("GET", "/v1/endpoints", list_endpoints),
    ("GET", "/v1/endpoints/{name}", show_endpoint),
)


def make_app(desk: Desk) -> ASGIApp:
    """The application behind its edge and its metrics."""
    app = FastAPI(
        title="Coatcheck gateway",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.desk = desk
    for method, path, endpoint in ROUTES:
        methods = ["GET", "HEAD"] if method == "GET" else [method]
        app.add_api_route(path, endpoint, methods=methods, response_model=None)
    document, page = describe(), reference_page()

    async def openapi(_: Request) -> Response:
        return Response(document, media_type="application/json")

    async def docs(_: Request) -> Response:
        headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return Response(page, headers=headers, media_type="text/html")

    async def explain(_: Request, code: str) -> Response:
        found = explanation_page(code)
        if found is None:
            raise Problem("not_found")
        return found

    open_to_all: tuple[tuple[str, Callable[..., Awaitable[Response]]], ...] = (
        ("/openapi.json", openapi),
        ("/docs", docs),
        ("/problems/{code}", explain),
    )
    for path, shown in open_to_all:
        app.add_api_route(path, shown, methods=["GET", "HEAD"], response_model=None)
    _handle_errors(app)
    return HttpMetrics(Edge(app), room="gateway")


def _handle_errors(app: FastAPI) -> None:
    async def on_problem(request: Request, error: Exception) -> Response:
        problem = error if isinstance(error, Problem) else Problem("internal_error")
        return _rendered(request, problem)

    async def on_http(request: Request, error: Exception) -> Response:
        is_other_method = isinstance(error, HTTPException) and error.status_code == 405
        if not is_other_method:
            return _rendered(request, Problem("not_found"))
        allowed = ", ".join(_methods_of(app, request))
        return _rendered(request, Problem("method_not_allowed", headers={"Allow": allowed}))

    async def on_unavailable(request: Request, error: Exception) -> Response:
        desk_of(request).database_outage.failed(error)
        retry = {"Retry-After": str(UNAVAILABLE_RETRY_SECONDS)}
        return _rendered(request, Problem("unavailable", headers=retry))

    async def on_gone(_: Request, __: Exception) -> Response:
        # Nobody reads this; the status is for the metric.
        return Response(None, GONE_STATUS)

    handlers: tuple[tuple[type[Exception], Handler], ...] = (
        (Problem, on_problem),
        (HTTPException, on_http),
        (Unavailable, on_unavailable),
        (ClientGone, on_gone),
        (Exception, on_problem),
    )
    for error, handler in handlers:
        app.add_exception_handler(error, handler)


def _methods_of(app: FastAPI, request: Request) -> list[str]:
    found: set[str] = set()
    for route in app.routes:
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            found |= set(getattr(route, "methods", None) or ())
    return sorted(found)


def _rendered(request: Request, problem: Problem) -> Response:
    return render(problem, request_id=request.state.request_id, path=request.url.path)
