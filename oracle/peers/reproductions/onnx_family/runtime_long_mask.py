import numpy as np
from onnx.parser import parse_model
from onnxruntime import InferenceSession

model = parse_model("""<ir_version: 11, opset_import: ["": 25]>
    g (float[1,1,2,1] q, bool[2,3] mask) => (float[1,1,2,1] y) { y = Attention(q, q, q, mask) }""")
q, mask = np.ones((1, 1, 2, 1), np.float32), np.ones((2, 3), bool)
print(InferenceSession(model.SerializeToString()).run(None, {"q": q, "mask": mask})[0].ravel())
