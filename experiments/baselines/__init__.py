"""The methods that scopeval is compared with, as their authors describe them; one a file.

- `experiments.baselines.ros`: robust on-policy sampling (Zhong et al., NeurIPS 2022)
- `experiments.baselines.ros_autograd`: the same for torch modules, many runs at once
- `experiments.baselines.bps`: behavior policy search (Hanna et al., ICML 2017)

On-policy Monte Carlo, ODI and DOpt are methods of `scopeval.exact.design` and
`scopeval.design`.
"""
