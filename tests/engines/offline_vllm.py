"""A program that uses vLLM as a library and knows nothing of us: batches in, what it got out.

python offline_vllm.py ASKED.json ANSWERED.json
"""

import json
import sys
from pathlib import Path


def keep_weights():
    """The CPU build repacks linear layers and drops the originals; keeping them is what a GPU build does."""
    from vllm.model_executor.layers import utils

    packed = utils.dispatch_cpu_unquantized_gemm
    utils.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: packed(layer, remove_weight=False)


def told(output):
    """What a caller sees of one sample."""
    logprobs = output.logprobs
    if logprobs is not None:
        logprobs = [[[token, one.logprob, one.rank] for token, one in row.items()] for row in logprobs]
    return {
        "index": output.index,
        "ids": list(output.token_ids),
        "text": output.text,
        "cumulative": output.cumulative_logprob,
        "logprobs": logprobs,
        "finish": [output.finish_reason, output.stop_reason],
    }


def main():
    asked = json.loads(Path(sys.argv[1]).read_text())
    if asked.get("keep"):
        keep_weights()
    from vllm import LLM, SamplingParams

    llm = LLM(**asked["engine"])
    answers = []
    for batch in asked["batches"]:
        for method, arguments in batch.get("calls", ()):
            llm.collective_rpc(method, kwargs=arguments)
        params = [SamplingParams(**one) for one in batch["params"]]
        prompts = [{"prompt_token_ids": ids} for ids in batch["prompts"]]
        outputs = llm.generate(prompts, params, use_tqdm=False)
        answers.append([[told(sample) for sample in output.outputs] for output in outputs])
    Path(sys.argv[2]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
