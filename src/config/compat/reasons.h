/*
 * config/compat/reasons: messages about unsupported features that other tools' files request. Keys and values
 * with the same message are reported in one line. Internal to config.
 */
#ifndef CONFIG_REASONS_H
#define CONFIG_REASONS_H

#define NO_QLORA                                                                                             \
    "QLoRA (adapters on base weights of 4 or 8 bits) is not supported yet; --quantization=none trains "      \
    "without it"
#define NO_QAT       "quantization-aware training is not supported yet; FP8 training is [float8]"
#define NO_FP4       "training in 4-bit formats is not supported yet; the smallest format is FP8"
#define NO_VLM       "vision-language models are not supported yet"
#define NO_DIFFUSION "diffusion models are not supported yet"
#define NO_EXPERTS                                                                                           \
    "mixtures of experts are not supported yet except Mixtral, Qwen3-MoE, dots.llm1, DeepSeek-V3 "           \
    "(Moonlight, Kimi K2) and DeepSeek-V2, from a folder (model.hf_path)"
#define NO_SPARSE       "sparse attention (DeepSeek-V3.2 and later) is not supported yet"
#define NO_SPEECH       "speech and audio models are not supported yet"
#define NO_ENCODERS     "encoder-decoder models are not supported yet"
#define NO_RETRIEVAL    "retrieval (embedding and ranking) models are not supported yet"
#define NO_CLASSES      "classification heads are not supported yet"
#define NO_DISTILLATION "knowledge distillation is not supported yet"
#define NO_REINFORCING  "reinforcement learning and preference training are not supported yet"
#define NO_DRAFTS       "training of draft models for speculative decoding is not supported yet"
#define NO_PREDICTION   "multi-token prediction is not supported yet"
#define NO_STATE_SPACE  "state-space (Mamba) layers are not supported yet"
#define NO_LINEAR       "linear attention is not supported yet"
#define NO_LAUNCHER     "Ottava is not a job launcher: start it with the cluster's own (sbatch, sky, kubectl)"
#define NO_GPU                                                                                               \
    "each process takes one GPU: mpirun -np N ottava train ... --train.device=cuda starts N processes"
#define EVEN_STAGES                                                                                          \
    "layers are divided evenly among the stages, and train.grad_accum_steps sets the micro-batches"
#define NO_PYTHON     "Python modules cannot be loaded"
#define NO_REPLICAS   "fault tolerance over replica groups is not supported yet"
#define NO_TOOL_CALLS "data and evaluation of tool calls are not supported yet"

#endif
