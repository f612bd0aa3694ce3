"""What all tests share: numbers are compared with those of the host, so products on a GPU are to be exact."""

import os

os.environ["MLX_ENABLE_TF32"] = "0"
