import numpy as np
from onnx.parser import parse_model
from onnxruntime import InferenceSession

model = parse_model("""<ir_version: 11, opset_import: ["": 25]>
    g (float[1,1,2,1] q, float[1,1,1,1] v) => (float[1,1,2,1] y) { y = Attention(q, q, v) }""")
q, v = np.ones((1, 1, 2, 1), np.float32), np.full((1, 1, 1, 1), 5, np.float32)
print(InferenceSession(model.SerializeToString()).run(None, {"q": q, "v": v})[0].ravel())
