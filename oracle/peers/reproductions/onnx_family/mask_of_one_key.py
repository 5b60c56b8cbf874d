import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

model = parse_model("""<ir_version: 11, opset_import: ["": 23]>
    g (float[1,1,2,1] q, float[1,1,2,1] v, bool[2,1] mask) => (float[1,1,2,1] y)
    { y = Attention(q, q, v, mask) }""")
q, v = np.zeros((1, 1, 2, 1), np.float32), np.array([[[[1], [3]]]], np.float32)
mask = np.array([[True], [False]])
print(ReferenceEvaluator(model).run(None, {"q": q, "v": v, "mask": mask})[0].ravel())
