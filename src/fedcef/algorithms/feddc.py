"""FedDC: local drift decoupling and correction.

Gao et al. 2022 (arXiv 2203.11751), as in the authors' code.  Client i keeps its drift h_i and a control variate g_i:

    client:  x ≈ argmin f_i(x) + (μ/2)|x - (z - d_i)|² + ⟨g - g_i, x⟩;   d_i ← d_i + x - z
             g_i ← g_i - g + (z - x)/(Kα);   upload x - z and the change of g_i
"""
