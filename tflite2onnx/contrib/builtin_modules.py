"""The module of each operator of this package: a conversion imports only the modules that it needs.

A test compares this table with the classes.
"""

from __future__ import annotations

import re

_TABLE = """
hash_tables.hash_table: HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_LOOKUP HASHTABLE_SIZE
random.rng_bit_generator: STABLEHLO_RNG_BIT_GENERATOR
random.sampling: MULTINOMIAL RANDOM_STANDARD_NORMAL RANDOM_UNIFORM
signal.flex_fft: FlexFFT FlexFFT2D FlexFFT3D FlexIFFT FlexIFFT2D FlexIFFT3D FlexIRFFT FlexIRFFT2D
    FlexIRFFT3D FlexRFFT FlexRFFT2D FlexRFFT3D
signal.microfrontend: AudioMicrofrontend
signal.rfft: COMPLEX_ABS IMAG IRFFT2D REAL RFFT2D
signal.spectrogram: AudioSpectrogram Mfcc
signal.tflm_fft: SignalIrfft SignalRfft
signal.tflm_frontend: SignalEnergy SignalFftAutoScale SignalFilterBank SignalFilterBankLog
    SignalFilterBankSquareRoot SignalPCAN SignalWindow
signal.tflm_streaming: CIRCULAR_BUFFER SignalDelay SignalFilterBankSpectralSubtraction SignalFramer
    SignalOverlapAdd SignalStacker
"""
MODULE_OF = dict(line.split(": ") for line in re.split(r"\n(?! )", _TABLE.strip()))
