from onnx.parser import parse_model
from onnxruntime import InferenceSession, set_default_logger_severity

set_default_logger_severity(4)
model = parse_model("""<ir_version: 11, opset_import: ["": 24]>
    g (float[1,1,2,1] q) => (float[1,1,2,1] y) { y = Attention <scale = 0.0> (q, q, q) }""")
try:
    InferenceSession(model.SerializeToString())
except Exception as error:
    print(str(error).split("was false. ")[-1].strip())
