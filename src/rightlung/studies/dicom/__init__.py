"""DICOM radiographs: `read_dicom` returns the image and the view, side and body part from the header.

pydicom is imported when the first file is read. Only elements on a short list
(`rightlung.studies.dicom.header`) are ever read; it contains no names, numbers or dates of patients.
"""

from rightlung.studies.dicom.header import is_dicom
from rightlung.studies.dicom.reading import DicomImage, read_dicom

__all__ = ["DicomImage", "is_dicom", "read_dicom"]
