import numpy as np
from onnx import checker, parser
from onnx.reference import ReferenceEvaluator

model = parser.parse_model("""<ir_version: 11, opset_import: ["": 24]>
    g (float[1,1,2,1] q) => (float[1,1,2,1] y) { y = Attention <scale = inf> (q, q, q) }""")
checker.check_model(model, full_check=True)
with np.errstate(all="ignore"):
    print(ReferenceEvaluator(model).run(None, {"q": np.ones((1, 1, 2, 1), np.float32)})[0].ravel())
