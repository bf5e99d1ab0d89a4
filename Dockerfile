# docker build -t tflite2onnx . && docker run --rm -v "$PWD:/models" tflite2onnx model.tflite --verify
FROM python:3.13-slim
COPY . /source
RUN pip install --no-cache-dir "/source[verify,images]" && rm -r /source
WORKDIR /models
ENTRYPOINT ["tflite2onnx"]
