import time


def read_shard(sign):
    with open(sign, "w") as file:
        file.write("x")
    time.sleep(600)
