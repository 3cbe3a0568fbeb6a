"""Runs in vLLM's environment: read argument lists of `vllm serve` with its own parser."""

from answer import answer
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

answer(make_arg_parser(FlexibleArgumentParser(prog="vllm serve")))
