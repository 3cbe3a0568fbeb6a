"""Dashboards for Grafana: what each shows (`service`, `fleet`, `operator`), and how it is written down (`panels`)."""

from collections.abc import Mapping

from charts.boards import fleet, operator, service
from charts.boards.panels import Board

BOARDS: Mapping[str, Board] = {board.name: board for board in (service.BOARD, fleet.BOARD, operator.BOARD)}
