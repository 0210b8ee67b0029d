import os, shutil, sys
os.chdir(sys.argv[1])
text = "".join(f"line {i}\n" for i in range(5000))
with open("a", "w") as f:
    f.write(text)
with open("a", "a") as f:
    f.write("appended\n")
print(os.stat("a").st_size, os.path.getsize("a"))
shutil.copyfile("a", "b")
with open("b", "r+b") as f:
    f.seek(4093)
    f.write(b"changed")
    f.truncate(10001)
os.rename("b", "c")
print(os.stat("c").st_size, open("c", "rb").read()[4090:4105], sorted(os.listdir(".")))
