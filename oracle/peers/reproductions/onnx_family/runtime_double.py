import numpy as np
from onnx.parser import parse_model
from onnxruntime import InferenceSession

model = parse_model("""<ir_version: 11, opset_import: ["": 24]>
    g (double[1,1,1,3] q, double[1,1,2,3] k) => (double[1,1,1,3] y) { y = Attention(q, k, k) }""")
q, k = np.ones((1, 1, 1, 3)), np.array([[[[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]]])
got = InferenceSession(model.SerializeToString()).run(None, {"q": q, "k": k})[0]
print(got.dtype, "error above 1e-9:", abs(got - 1 / (1 + np.exp(-np.sqrt(3)))).max() > 1e-9)
