import numpy as np
from onnx.parser import parse_model
from onnxruntime import InferenceSession

for attributes in ("<scale = nan>", ""):
    model = parse_model(f"""<ir_version: 11, opset_import: ["": 24]>
        g (float[1,1,2,1] q) => (float[1,1,2,1] y) {{ y = Attention {attributes} (q, q, q) }}""")
    q = np.array([[[[0], [1]]]], np.float32)
    print(InferenceSession(model.SerializeToString()).run(None, {"q": q})[0].ravel().round(4))
