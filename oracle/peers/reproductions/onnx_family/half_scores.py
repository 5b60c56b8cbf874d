import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

model = parse_model("""<ir_version: 11, opset_import: ["": 24]>
    g (float16[1,1,1,1] q, float16[1,1,1,1] v) => (float16[1,1,1,1] y)
    { y = Attention <scale = 1.0, softmax_precision = 1> (q, q, v) }""")
q, v = np.full((1, 1, 1, 1), 300, np.float16), np.ones((1, 1, 1, 1), np.float16)
with np.errstate(all="ignore"):
    print(ReferenceEvaluator(model).run(None, {"q": q, "v": v})[0].ravel())
