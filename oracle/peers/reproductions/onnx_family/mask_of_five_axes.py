import numpy as np
from onnx import checker
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

model = parse_model("""<ir_version: 11, opset_import: ["": 24]>
    g (float[1,1,2,1] q, bool[3,1,1,2,2] mask) => (float[1,1,2,1] y)
    { y = Attention(q, q, q, mask) }""")
checker.check_model(model, full_check=True)
q, mask = np.ones((1, 1, 2, 1), np.float32), np.ones((3, 1, 1, 2, 2), bool)
print(ReferenceEvaluator(model).run(None, {"q": q, "mask": mask})[0].shape)
