#!/usr/bin/env bash
# An environment with the wheel travels to YARN's nodes; run this where spark-submit is.
set -euo pipefail
python3.11 -m venv heddle-env
heddle-env/bin/pip install './heddle-0.1.0-py3-none-any.whl[spark]' venv-pack
heddle-env/bin/venv-pack --output heddle-env.tar.gz
spark-submit --master yarn --deploy-mode cluster \
  --packages io.delta:delta-spark_4.2_2.13:4.4.0 \
  --archives heddle-env.tar.gz#environment \
  --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python \
  --conf spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python \
  --conf spark.yarn.appMasterEnv.HEDDLE_SPARK_CODE=installed \
  --conf spark.yarn.appMasterEnv.HEDDLE_WAREHOUSE=s3://analytics/heddle \
  heddle_main.py tick --json --engine spark
