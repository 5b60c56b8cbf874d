import numpy as np
from onnx.parser import parse_model
from onnxruntime import InferenceSession, set_default_logger_severity

set_default_logger_severity(4)
model = parse_model("""<ir_version: 11, opset_import: ["": 24]>
    g (float[1,1,2,1] q, bool[1,1,1,2] mask) => (float[1,1,2,1] y)
    { y = Attention(q, q, q, mask) }""")
q, mask = np.ones((1, 1, 2, 1), np.float32), np.array([[[[True, False]]]])
try:
    print(InferenceSession(model.SerializeToString()).run(None, {"q": q, "mask": mask})[0].ravel())
except Exception as error:
    print(str(error).split("was false. ")[-1].strip())
