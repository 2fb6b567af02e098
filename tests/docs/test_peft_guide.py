"""Adapters of peft in a model of transformers, as the guide has them; models are made from sizes, nothing is loaded."""

import textwrap

import pytest
import torch
from test_pages import DOCS, outputs

from fedcef import FedCEF, Problem, TopK, run
from fedcef.optimizers import AdamW
from fedcef.problems.text import from_texts, next_token_loss

peft = pytest.importorskip("peft", reason="peft is not installed: pip install peft transformers")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")

CLIENTS = from_texts(["one, two, three, five, eight. " * 20, "ten nine eight seven six. " * 20], context=16)
SIGNS = TopK(ratio=0.1, values="sign")
METHOD = FedCEF(
    local_lr=1e-2,
    local_steps=5,
    local_update=AdamW(memory="client"),
    compressor=SIGNS,
    down_compressor=SIGNS,
    downlink="lossy",
    control="change",
)
TARGETS = {"llama": ["q_proj", "v_proj"], "gpt2": ["c_attn"]}
pytestmark = [
    pytest.mark.extras,
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of peft, on tied weights and transposed layers
]


class Transposed(torch.nn.Module):
    """Scores with the vocabulary on axis 1."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens).logits.transpose(1, 2)


def language_model(name):
    """A small model without dropout in its attention, whose embedding is its last layer, too."""
    torch.manual_seed(0)
    ends = {"vocab_size": 256, "bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": True}
    if name == "gpt2":
        sizes = {"n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 2, "attn_pdrop": 0.0}
        return transformers.AutoModelForCausalLM.from_config(transformers.GPT2Config(**ends, **sizes))
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**ends, **sizes))


def adapted(name, **options):
    config = peft.LoraConfig(**{"r": 4, "target_modules": TARGETS[name], **options})
    return peft.get_peft_model(language_model(name), config)


def trained(model):
    problem = Problem.build(Transposed(model), next_token_loss, CLIENTS)
    return problem, run(problem, METHOD, rounds=2, batch_size=4, seed=3)


def test_the_lines_of_the_guide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, names = outputs("guides/adapters.md")
    section = (
        (DOCS / "guides/adapters.md").read_text("utf-8").partition("## Adapters of `peft`")[2].partition("\n## ")[0]
    )
    lines = [line for line in section.splitlines() if line.startswith("    ") or not line]
    exec(textwrap.dedent("\n".join(lines)), names)
    assert all("lora_" in name for name in names["problem"].layout.names)
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("options", [{}, {"use_dora": True}, {"modules_to_save": ["lm_head"]}], ids=str)
def test_what_was_trained_is_in_pefts_own_files(name, options, tmp_path):
    model = adapted(name, lora_dropout=0.1, **options)
    _, history = trained(model)
    assert history.parameters.keys() == Transposed(model).state_dict().keys()
    assert any(not torch.equal(history.parameters[n], p) for n, p in Transposed(model).named_parameters())
    Transposed(model).load_state_dict(history.parameters)
    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(language_model(name), tmp_path)
    tokens = CLIENTS.samples(0, 3).inputs
    scores = history.model.eval()(tokens).transpose(1, 2)
    assert torch.equal(model.eval()(tokens).logits, scores)
    assert torch.equal(again.eval()(tokens).logits, scores)


@pytest.mark.parametrize("name", TARGETS)
def test_tied_weights_stay_tied_and_frozen(name):
    model = adapted(name)
    before = model.get_input_embeddings().weight.clone()
    problem, history = trained(model)
    assert all("lora_" in name for name in problem.layout.names)
    Transposed(model).load_state_dict(history.parameters)
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert torch.equal(model.get_input_embeddings().weight, before)


@pytest.mark.parametrize("name", TARGETS)
def test_dropout_in_adapters_repeats(name):
    first, second = (trained(adapted(name, lora_dropout=0.5))[1] for _ in range(2))
    without = trained(adapted(name))[1]
    assert all(torch.equal(value, second.parameters[part]) for part, value in first.parameters.items())
    assert any(not torch.equal(value, without.parameters[part]) for part, value in first.parameters.items())
