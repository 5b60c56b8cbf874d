import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

model = parse_model("""<ir_version: 11, opset_import: ["": 24]>
    g (float[1,1,2,1] q, float[1,1,0,1] k) => (float[1,1,2,1] y) { y = Attention(q, k, k) }""")
q, k = np.ones((1, 1, 2, 1), np.float32), np.ones((1, 1, 0, 1), np.float32)
try:
    print(ReferenceEvaluator(model).run(None, {"q": q, "k": k})[0].ravel())
except ValueError as error:
    print(error)
